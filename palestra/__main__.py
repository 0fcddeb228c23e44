"""`python -m palestra` is `palestra`."""

from palestra.core import early_interrupt

early_interrupt.install()


def main() -> None:
    from palestra.cli.main import main as command
    from palestra.core.openmp import wait_politely

    wait_politely()
    with early_interrupt.running():
        command()


if __name__ == "__main__":
    main()
