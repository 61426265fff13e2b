module hone.dev/tests/cluster/ociimage

go 1.25.0
