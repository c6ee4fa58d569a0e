"""The node of the demo: started, asked, killed."""
