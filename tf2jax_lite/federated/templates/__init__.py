"""Parts of learning processes under TFF's package name, `tff.learning.templates`."""
