"""What a probe costs on this machine, compared with the alternatives.

Nothing here prints: `pyresolve.cli.bench` does. Only that command imports this package.
"""
