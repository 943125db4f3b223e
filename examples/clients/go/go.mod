module example.com/acts-clients

go 1.24
