"""What `hvj doctor` checks, a module for each subject. A check reads through `Facts` and gives findings."""
