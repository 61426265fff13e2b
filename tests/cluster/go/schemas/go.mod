module hone.dev/tests/cluster/schemas

go 1.25.0
