module hone.dev/tests/cluster/tekton

go 1.26.4

require github.com/tektoncd/pipeline v1.15.0
