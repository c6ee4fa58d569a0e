"""Which of several replicas leads: not one that lacks something, while another one can."""
