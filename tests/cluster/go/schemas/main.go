// Command schemas turns an API server's OpenAPI document (version 2) into JSON schemas for kubeconform,
// one file a kind, each complete in itself.
//
//	kubectl get --raw /openapi/v2 | schemas -out DIR
//	kubeconform -schema-location 'DIR/{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json' FILE…
//
// They are strict: a field that the server does not know is an error.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

type object = map[string]any

const refPrefix = "#/definitions/"

func main() {
	out := flag.String("out", "", "directory to write")
	flag.Parse()
	if *out == "" {
		flag.Usage()
		os.Exit(2)
	}
	count, err := run(*out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
	fmt.Println(count)
}

func run(out string) (int, error) {
	var document struct{ Definitions map[string]object }
	if err := json.NewDecoder(os.Stdin).Decode(&document); err != nil {
		return 0, err
	}
	if len(document.Definitions) == 0 {
		return 0, fmt.Errorf("no definitions in the input")
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return 0, err
	}
	for name, definition := range document.Definitions {
		adapt(name, definition)
	}
	count := 0
	for name, definition := range document.Definitions {
		for _, file := range fileNames(definition) {
			used := map[string]object{}
			collect(document.Definitions, name, used)
			schema := object{"$schema": "http://json-schema.org/draft-07/schema#", "$ref": refPrefix + name, "definitions": used}
			text, err := json.Marshal(schema)
			if err != nil {
				return 0, err
			}
			if err := os.WriteFile(filepath.Join(out, file), text, 0o644); err != nil {
				return 0, err
			}
			count++
		}
	}
	return count, nil
}

// fileNames of the kinds that a definition describes: none, mostly, for a part of a kind; many for
// those that every group has, such as DeleteOptions.
func fileNames(definition object) []string {
	kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
	var names []string
	for _, k := range kinds {
		kind, ok := k.(object)
		if !ok {
			continue
		}
		group := kind["group"]
		if group == "" { // kubeconform takes what stands before the slash, or all of "v1"
			group = kind["version"]
		}
		names = append(names, strings.ToLower(fmt.Sprintf("%v_%v_%v.json", group, kind["version"], kind["kind"])))
	}
	return names
}

// collect adds a definition and all that it refers to.
func collect(all map[string]object, name string, used map[string]object) {
	if used[name] != nil || all[name] == nil {
		return
	}
	used[name] = all[name]
	visit(all[name], func(o object) {
		if ref, ok := o["$ref"].(string); ok {
			collect(all, strings.TrimPrefix(ref, refPrefix), used)
		}
	})
}

// visit calls f for every object within v, v included.
func visit(v any, f func(object)) {
	switch v := v.(type) {
	case object:
		f(v)
		for _, inner := range v {
			visit(inner, f)
		}
	case []any:
		for _, inner := range v {
			visit(inner, f)
		}
	}
}

// adapt says in JSON Schema what Kubernetes says in extensions or leaves unsaid.
func adapt(name string, definition object) {
	switch {
	case strings.HasSuffix(name, ".IntOrString"), strings.HasSuffix(name, ".Quantity"):
		definition["type"] = []string{"string", "integer", "number"}
		delete(definition, "format")
		return
	case strings.Contains(name, ".apiextensions-apiserver.") && strings.Contains(name, ".JSON"):
		// A schema within a schema, or any JSON: not worth being strict about.
		for key := range definition {
			delete(definition, key)
		}
		return
	}
	visit(definition, func(o object) {
		if o["x-kubernetes-int-or-string"] == true {
			o["type"] = []string{"string", "integer"}
			delete(o, "format")
		}
		fields, ok := o["properties"].(object)
		if ok && o["x-kubernetes-preserve-unknown-fields"] != true && o["additionalProperties"] == nil {
			// A schema's own property that is called "properties" is a schema, not a list of fields.
			if _, isField := fields["type"].(string); !isField {
				o["additionalProperties"] = false
			}
		}
	})
}
