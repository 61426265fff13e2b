// Command kstatus prints what Flux (and every other user of the kstatus library) makes of an object.
//
//	kstatus FILE.yaml|-     ->  Current|InProgress|Failed|Terminating|NotFound|Unknown <tab> message
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: kstatus FILE.yaml|-")
		os.Exit(2)
	}
	result, err := compute(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "kstatus:", err)
		os.Exit(1)
	}
	fmt.Printf("%s\t%s\n", result.Status, result.Message)
}

func compute(path string) (*status.Result, error) {
	in := os.Stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	text, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	// By way of JSON and the object's own decoder: the library wants integers as int64.
	json, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, err
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(json); err != nil {
		return nil, err
	}
	return status.Compute(object)
}
