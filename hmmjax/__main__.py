"""``python -m hmmjax``."""

from hmmjax.cli import main

if __name__ == "__main__":
    main()
