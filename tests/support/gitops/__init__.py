"""What engines of GitOps read: samples of objects, and how they assess their health."""
