from palestra.core import early_interrupt

early_interrupt.install()

from palestra.launch.worker import main  # noqa: E402  what takes seconds comes after what makes them safe

main()
