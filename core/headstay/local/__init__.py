"""The local model: vLLM with prefix caching, in an environment of its own, installed, supervised and warmed.

Nothing here is imported by `import headstay`, and vLLM is never imported: it runs as a process of its own.
"""
