"""What people look at: tables, pictures and pages, made from predictions and run records."""
