"""What is learnt: records to samples, logits to answers."""
