"""What the memory graph finds, reads, computes and sees as ended."""
