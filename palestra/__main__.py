"""`python -m palestra` is `palestra`."""

from palestra import early

early.install()


def main() -> None:
    from palestra.cli import main as command

    with early.running():
        command()


if __name__ == "__main__":
    main()
