// Command devices stands for what a vendor installs on a node: a device plugin that gives the node an extended
// resource, and hands a container that gets one the files and the variables that its configuration lists.
//
// usage: devices CONFIG.json
package main

import (
	"encoding/json"
	"log"
	"os"
)

// Config is what the program is told.
type Config struct {
	// Resource is the extended resource, such as hone.test/gpu.
	Resource string `json:"resource"`
	// Devices is how many of it the node gets.
	Devices int `json:"devices"`
	// Mounts are handed to a container with a device, read-only.
	Mounts []Mount `json:"mounts"`
	// Environment is handed to it too.
	Environment map[string]string `json:"environment"`
}

// Mount is a file or a folder of the node, and where a container sees it.
type Mount struct {
	Host      string `json:"host"`
	Container string `json:"container"`
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: devices CONFIG.json")
	}
	text, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var config Config
	if err := json.Unmarshal(text, &config); err != nil {
		log.Fatalf("%s: %v", os.Args[1], err)
	}
	log.Fatal(serve(config))
}
