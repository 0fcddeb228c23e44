"""wagtail's standard settings, without its checks for updates and external images."""

from pathlib import Path

from django_common.base_settings import *  # noqa: F403

ROOT_URLCONF = "cms.urls"
INSTALLED_APPS = [
    "cms",
    "wagtail.contrib.redirects",
    "wagtail.users",
    "wagtail.snippets",
    "wagtail.documents",
    "wagtail.images",
    "wagtail.search",
    "wagtail.admin",
    "wagtail",
    "modelcluster",
    "taggit",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "wagtail.contrib.redirects.middleware.RedirectMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [Path(__file__).parent / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
WAGTAIL_SITE_NAME = "Quayside Museum"
WAGTAILADMIN_BASE_URL = "http://cms.test"
WAGTAIL_ENABLE_UPDATE_CHECK = False
WAGTAIL_ENABLE_WHATS_NEW_BANNER = False
WAGTAIL_GRAVATAR_PROVIDER_URL = None
WAGTAIL_PASSWORD_RESET_ENABLED = False
WAGTAILADMIN_COMMENTS_ENABLED = False
WAGTAIL_AUTOSAVE_INTERVAL = 0
WAGTAIL_EDITING_SESSION_PING_INTERVAL = 10**9
WAGTAIL_WORKFLOW_ENABLED = False
WAGTAILADMIN_UNSAFE_PAGE_DELETION_LIMIT = 1000
WAGTAIL_I18N_ENABLED = False
WAGTAILADMIN_RICH_TEXT_EDITORS = {"default": {"WIDGET": "cms.editor.PromptEditor"}}
