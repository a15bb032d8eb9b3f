"""What must not leave this machine: serials, and the names of people, hosts and their folders."""
