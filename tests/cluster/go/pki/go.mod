module hone.dev/tests/cluster/pki

go 1.25.0
