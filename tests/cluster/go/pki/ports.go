package main

import (
	"fmt"
	"math/rand"
	"net"
	"strings"
)

// Ports are taken below the kernel's ephemeral range, so that no outgoing connection takes one
// between the pick and the server's own bind.
const (
	firstPort = 15000
	lastPort  = 32000
)

// ports returns shell assignments NAME_PORT=number for every component, and the API server's port.
func ports(host string) (env string, api int, err error) {
	taken := map[int]bool{}
	var lines strings.Builder
	fmt.Fprintf(&lines, "HOST=%s\n", host)
	for _, name := range []string{"API", "ETCD", "ETCD_PEER", "CONTROLLERS", "SCHEDULER", "KUBELET", "KWOK", "S3", "GCS", "AZURE"} {
		port, err := freePort(host, taken)
		if err != nil {
			return "", 0, err
		}
		if name == "API" {
			api = port
		}
		fmt.Fprintf(&lines, "%s_PORT=%d\n", name, port)
	}
	return lines.String(), api, nil
}

func freePort(host string, taken map[int]bool) (int, error) {
	for range 500 {
		port := firstPort + rand.Intn(lastPort-firstPort)
		if taken[port] {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
		if err != nil {
			continue
		}
		l.Close()
		taken[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("no free port on %s between %d and %d", host, firstPort, lastPort)
}
