"""Speed and memory of training, answering, retrieval and graph building, beside the peers."""
