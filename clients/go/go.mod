module example.com/dwell

go 1.23
