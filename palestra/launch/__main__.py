from palestra import early_interrupt

early_interrupt.install()

from palestra.launch.work import main  # noqa: E402  what takes seconds comes after what makes them safe

main()
