"""What a probe costs on this machine, against what one would do instead.

Nothing here prints: that is `pyresolve.cli.bench`'s. Nothing outside that command imports it.
"""
