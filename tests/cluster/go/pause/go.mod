module hone.dev/tests/cluster/pause

go 1.25.0
