"""The command `treeproof`: one file per command, each parses, calls the library and prints."""


def run() -> None:
    """Start the command line, or say which extra brings what it needs."""
    import sys

    from treeproof.errors import BackendMissing, require_backend

    try:
        for module in ("click", "rich"):
            require_backend(module, "cli")
    except BackendMissing as error:
        sys.stderr.write(f"treeproof: {error}\n")
        raise SystemExit(2) from None
    from treeproof.cli.console import LastingOutput
    from treeproof.cli.main import main

    sys.stdout = LastingOutput(sys.stdout, has_answers=True)
    sys.stderr = LastingOutput(sys.stderr, has_answers=False)
    main()
