// Command argohealth runs a health script in Argo CD's own Lua engine.
//
//	argohealth OBJECT.yaml|- HEALTH.lua     ->  Healthy|Progressing|Degraded|Suspended|Missing|Unknown <tab> message
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/argoproj/argo-cd/v3/util/lua"
	"github.com/argoproj/gitops-engine/pkg/health"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: argohealth OBJECT.yaml|- HEALTH.lua")
		os.Exit(2)
	}
	result, err := compute(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "argohealth:", err)
		os.Exit(1)
	}
	fmt.Printf("%s\t%s\n", result.Status, result.Message)
}

func compute(objectPath, scriptPath string) (*health.HealthStatus, error) {
	in := os.Stdin
	if objectPath != "-" {
		f, err := os.Open(objectPath)
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
	script, err := os.ReadFile(scriptPath)
	if err != nil {
		return nil, err
	}
	object := map[string]any{}
	if err := yaml.Unmarshal(text, &object); err != nil {
		return nil, err
	}
	// Argo CD runs such scripts without Lua's standard libraries, and so do we.
	engine := lua.VM{UseOpenLibs: false}
	return engine.ExecuteHealthLua(&unstructured.Unstructured{Object: object}, string(script))
}
