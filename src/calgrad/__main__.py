"""`python -m calgrad` is `calgrad`."""

from calgrad.cli import main

if __name__ == "__main__":
    main()
