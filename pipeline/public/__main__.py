"""The command as `python -m ridgestream`."""

from ridgestream.jobs.cli.app import main

if __name__ == "__main__":
    main()
