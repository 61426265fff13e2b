# The front doors. Everything they do is in `cargo xtask`.
.PHONY: demo install test test-product test-kueue test-tekton demo-cluster bench-peers scale trials chaos mutate mutants gpu

# The main job: one YAML file to a measured native artifact, on this machine.
demo:
	cargo xtask setup
	cargo xtask demo

# The programs `hone` and `kubectl-hone`, into ~/.cargo/bin.
install:
	cargo xtask setup
	cargo install --locked --path compiler-worker
	cargo install --locked --path console

# Everything that is checked before a change lands.
test:
	cargo xtask setup --tests
	cargo xtask test

# Of that only the product from end to end, on a real node with release images.
test-product:
	cargo xtask setup --tests
	cargo xtask test --product

# Kueue itself before Hone's Jobs: quota, preemption, a stopped queue; docs/suites.md.
test-kueue:
	cargo xtask setup
	cargo xtask shipped
	tests/cluster/setup.sh plane kwok kueue
	HONE_CLUSTER_TESTS=required cargo test --package hone-cluster-tests --test kueue

# Tekton's controller itself before Hone's: pipelines whose tasks are compilations; docs/suites.md.
test-tekton:
	cargo xtask setup
	cargo xtask shipped
	tests/cluster/setup.sh plane kwok tekton
	HONE_CLUSTER_TESTS=required cargo test --package hone-cluster-tests --test tekton

# A control plane and a node on this machine; the example applied; its status as it changes.
demo-cluster:
	cargo xtask setup
	cargo xtask demo-cluster

# Hone against its peers, interleaved; writes docs/benchmarks/.
bench-peers:
	cargo xtask setup
	cargo xtask bench-peers

# 200 single faults in generated code and packed weights: how many `hone verify` catches; docs/suites.md.
mutate:
	cargo xtask setup
	cargo xtask mutate --seed 1 --faults 200

# Code for GPUs, as far as it can be checked without one; docs/gpu.md.
gpu:
	cargo xtask setup --tests
	cargo xtask gpu

# 10,000 compilations over 1,000 simulated nodes; docs/suites.md.
scale:
	cargo xtask setup
	cargo xtask shipped
	tests/cluster/setup.sh plane kwok helm
	cargo xtask scale

# One tuning run of 100,000 trials over 200 simulated sessions; docs/suites.md.
trials:
	cargo xtask setup
	cargo xtask shipped
	tests/cluster/setup.sh node s3 images helm
	cargo xtask trials

# 200 kills at random moments; docs/suites.md.
chaos:
	cargo xtask setup
	cargo xtask shipped
	tests/cluster/setup.sh node s3 images helm
	cargo xtask chaos

# How many small changes of the code the tests catch; hours. docs/suites.md.
mutants:
	cargo xtask setup
	cargo xtask mutants
