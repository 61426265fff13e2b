package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
)

// The names below are those of the OCI image specification 1.1.

type containerConfig struct {
	User       string   `json:"User,omitempty"`
	Env        []string `json:"Env,omitempty"`
	Entrypoint []string `json:"Entrypoint,omitempty"`
	WorkingDir string   `json:"WorkingDir,omitempty"`
}

type imageConfig struct {
	Architecture string          `json:"architecture"`
	OS           string          `json:"os"`
	Config       containerConfig `json:"config"`
	RootFS       rootFS          `json:"rootfs"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type manifest struct {
	SchemaVersion int          `json:"schemaVersion"`
	MediaType     string       `json:"mediaType"`
	Config        descriptor   `json:"config"`
	Layers        []descriptor `json:"layers"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	Manifests     []descriptor `json:"manifests"`
}

const mediaType = "application/vnd.oci.image."

func describe(kind string, data []byte) descriptor {
	sum := sha256.Sum256(data)
	return descriptor{MediaType: mediaType + kind, Digest: "sha256:" + hex.EncodeToString(sum[:]), Size: len(data)}
}

// writeArchive writes an image layout as one tar file, in one step: a reader sees the old file or the
// new one. Returns the digest of the manifest and the sum of the layers' sizes in bytes.
func writeArchive(out, ref, architecture string, config containerConfig, layers []*layer) (digest string, size int, err error) {
	blobs := map[string][]byte{}
	image := imageConfig{Architecture: architecture, OS: "linux", Config: config, RootFS: rootFS{Type: "layers"}}
	m := manifest{SchemaVersion: 2, MediaType: mediaType + "manifest.v1+json"}
	var order []string
	keep := func(kind string, data []byte) descriptor {
		d := describe(kind, data)
		if blobs[d.Digest] == nil {
			order = append(order, d.Digest)
		}
		blobs[d.Digest] = data
		return d
	}
	for _, l := range layers {
		data, err := l.bytes()
		if err != nil {
			return "", 0, err
		}
		d := keep("layer.v1.tar", data)
		m.Layers = append(m.Layers, d)
		image.RootFS.DiffIDs = append(image.RootFS.DiffIDs, d.Digest)
		size += d.Size
	}
	encodedConfig, err := json.Marshal(image)
	if err != nil {
		return "", 0, err
	}
	m.Config = keep("config.v1+json", encodedConfig)
	encodedManifest, err := json.Marshal(m)
	if err != nil {
		return "", 0, err
	}
	top := keep("manifest.v1+json", encodedManifest)
	// Both spellings: containerd's importer reads the first, other tools the second.
	top.Annotations = map[string]string{"io.containerd.image.name": ref, "org.opencontainers.image.ref.name": ref}
	encodedIndex, err := json.Marshal(index{SchemaVersion: 2, Manifests: []descriptor{top}})
	if err != nil {
		return "", 0, err
	}
	return top.Digest, size, writeLayout(out, encodedIndex, order, blobs)
}

func writeLayout(out string, encodedIndex []byte, order []string, blobs map[string][]byte) (err error) {
	file, err := os.CreateTemp(filepath.Dir(out), ".image-*")
	if err != nil {
		return err
	}
	defer func() {
		file.Close()
		if err != nil {
			os.Remove(file.Name())
		}
	}()
	w := tar.NewWriter(file)
	put := func(name string, data []byte) {
		if err == nil {
			err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg})
		}
		if err == nil {
			_, err = w.Write(data)
		}
	}
	put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	put("index.json", encodedIndex)
	for _, digest := range order {
		put("blobs/sha256/"+digest[len("sha256:"):], blobs[digest])
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = file.Chmod(0o644)
	}
	if err == nil {
		err = os.Rename(file.Name(), out)
	}
	return err
}
