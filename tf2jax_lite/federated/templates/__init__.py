"""Parts of learning processes, under TFF's package name.

blocks: finalizers.
client_work: the work of a client.
compose: learning processes from parts.
"""
