"""`python -m varprop` is the command `varprop`."""

from varprop.cli.app import main

main()
