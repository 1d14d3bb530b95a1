"""Files on local disks and in object stores."""
