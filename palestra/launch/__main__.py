from palestra.launch.work import main

main()
