// Command ociimage writes a container image as an OCI archive, without a daemon, a registry or a
// base image. The same files give the same bytes: times are zero, owners are root, entries are in
// the order of the arguments (directories sorted), layers are not compressed.
//
//	ociimage -out FILE.tar -ref NAME:TAG [-user UID:GID] [-entrypoint WORD]... [-env K=V]... ITEM...
//
// where an ITEM, in the order in which it is to lie in the image, is one of
//
//	-add SRC:DST      a file, or a directory with all below it
//	-binary SRC:DST   a program, and the shared libraries and the loader that ldd lists for it
//	-link TARGET:DST  a symbolic link
//	-text DST=TEXT    a small file
//	-layer            what follows goes into a new layer
//
// Prints the image's digest (that of its manifest) and its size in bytes.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ociimage:", err)
		os.Exit(1)
	}
}

func run() error {
	out := flag.String("out", "", "archive to write")
	ref := flag.String("ref", "", "name and tag, such as localhost/hone/operator:dev")
	config := containerConfig{User: "65532:65532", WorkingDir: "/"}
	architecture := flag.String("architecture", runtime.GOARCH, "as in Go: amd64, arm64")
	flag.StringVar(&config.User, "user", config.User, "user and group that the container runs as")
	flag.Func("entrypoint", "a word of the command (repeatable)", func(s string) error {
		config.Entrypoint = append(config.Entrypoint, s)
		return nil
	})
	flag.Func("env", "K=V (repeatable)", func(s string) error {
		config.Env = append(config.Env, s)
		return nil
	})
	layers := []*layer{newLayer()}
	item := func(add func(l *layer, a, b string) error, separator string) func(string) error {
		return func(s string) error {
			a, b, ok := strings.Cut(s, separator)
			if !ok {
				return fmt.Errorf("want A%sB, have %q", separator, s)
			}
			return add(layers[len(layers)-1], a, b)
		}
	}
	flag.Func("add", "SRC:DST (repeatable)", item((*layer).addPath, ":"))
	flag.Func("binary", "SRC:DST (repeatable)", item((*layer).addBinary, ":"))
	flag.Func("link", "TARGET:DST (repeatable)", item((*layer).addLink, ":"))
	flag.Func("text", "DST=TEXT (repeatable)", item((*layer).addText, "="))
	flag.BoolFunc("layer", "begin a new layer", func(string) error {
		next := newLayer()
		next.inherit(layers[len(layers)-1])
		layers = append(layers, next)
		return nil
	})
	flag.Parse()
	if *out == "" || *ref == "" || flag.NArg() != 0 {
		flag.Usage()
		os.Exit(2)
	}
	digest, size, err := writeArchive(*out, *ref, *architecture, config, layers)
	if err != nil {
		return err
	}
	fmt.Printf("%s %s %d\n", *ref, digest, size)
	return nil
}
