"""Conversational question answering with a graph of evidence inside a language model's prompt."""
