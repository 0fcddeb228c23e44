"""Runs side by side: seeds as one mean or apart, results, and how they played the same task."""

from playwright.sync_api import expect


def test_runs_are_compared(server, visit):
    page = visit(server, "compare").page
    expect(page.get_by_text("Choose two or more runs.")).to_be_visible()
    for name in ("small-0", "small-1", "other"):
        page.get_by_role("checkbox", name=name).check()
    expect(page).to_have_url(f"{server.address}/#/compare?runs=0%2C1%2C2")
    expect(page.locator(".contenders li")).to_have_count(2)  # two seeds of one, and the other
    expect(page.get_by_text("bands their 95% intervals")).to_be_visible()
    results = page.get_by_role("region", name="Final success by category")
    expect(results.get_by_role("columnheader")).to_have_count(3)
    page.get_by_role("checkbox", name="seeds of the same settings").uncheck()
    expect(page.locator(".contenders li")).to_have_count(3)
    expect(results.get_by_role("columnheader")).to_have_count(4)
    expect(results.get_by_role("rowheader", name="GoToObj")).to_be_visible()
    page.reload()
    expect(page.locator(".contenders li")).to_have_count(3)


def test_the_same_task_of_several_runs(server, visit):
    page = visit(server, "compare?runs=0,1").page
    table = page.get_by_role("region", name="Episodes side by side")
    expect(table.locator("thead th")).to_have_count(3)
    expect(table).to_contain_text("small-0, seed 0")
    expect(table).to_contain_text("small-1, seed 1")
    task = page.locator(".field").filter(has_text="Task").get_by_role("combobox")
    other = task.get_by_role("option").nth(3).inner_text()
    task.select_option(other)
    expect(page).to_have_url(f"{server.address}/#/compare?runs=0%2C1&task={other}")
    expect(table.locator("thead th")).to_have_count(3)
    table.get_by_role("link", name="small-1, seed 1").click()
    expect(page.locator("dl.facts").first).to_contain_text(other)
