"""What people look at: the table in the terminal and the HTML report."""
