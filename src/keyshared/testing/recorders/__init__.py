"""Recorders write down what processes do with a queue or a log that nobody can drive, as histories of the kit.

Each recorder stands in one process, beside the client that the process uses anyway, and is told of its calls and
answers. They import no client, open no connection and change no message.
"""
