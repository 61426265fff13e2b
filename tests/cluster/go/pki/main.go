// Command pki writes what a control plane for tests needs before it can start: certificates,
// kubeconfigs, a token and a set of free ports. It uses only Go's standard library, so that it
// builds in seconds where the control plane itself is brought along.
//
//	pki -dir DIR [-host IP] [-sans NAME,...] [-nodes NAME=IP,...]
//
// writes DIR/ports.env (shell variables), DIR/pki/*, DIR/kubeconfig (administrator) and one
// kubeconfig a component.
package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// options says what to write; addresses are textual IPs.
type options struct {
	dir, host, serviceIP string
	sans                 []string
	nodes                map[string]string // name -> IP
}

func main() {
	o := options{nodes: map[string]string{}}
	flag.StringVar(&o.dir, "dir", "", "directory to write")
	flag.StringVar(&o.host, "host", "127.0.0.1", "address that clients use for the API server")
	flag.StringVar(&o.serviceIP, "service-ip", "10.96.0.1", "first address of the service range")
	sans := flag.String("sans", "", "further names for the API server's certificate, comma separated")
	nodes := flag.String("nodes", "", "name=ip of the real nodes, comma separated")
	flag.Parse()
	if o.dir == "" {
		flag.Usage()
		os.Exit(2)
	}
	o.sans = list(*sans)
	for _, n := range list(*nodes) {
		name, ip, _ := strings.Cut(n, "=")
		o.nodes[name] = ip
	}
	if err := write(o); err != nil {
		fmt.Fprintln(os.Stderr, "pki:", err)
		os.Exit(1)
	}
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

func write(o options) error {
	if err := os.MkdirAll(filepath.Join(o.dir, "pki"), 0o700); err != nil {
		return err
	}
	env, apiPort, err := ports(o.host)
	if err != nil {
		return err
	}
	ca, err := newAuthority("hone-test-ca")
	if err != nil {
		return err
	}
	if err := writeServing(o, ca); err != nil {
		return err
	}
	if err := writeServiceAccountKeys(o); err != nil {
		return err
	}
	token, err := writeToken(o)
	if err != nil {
		return err
	}
	if err := writeKubeconfigs(o, ca, apiPort); err != nil {
		return err
	}
	// Last: whoever sees this file may rely on the others.
	return os.WriteFile(filepath.Join(o.dir, "ports.env"), []byte(env+"TOKEN="+token+"\n"), 0o600)
}

func (o options) put(name string, data []byte) error {
	return os.WriteFile(filepath.Join(o.dir, "pki", name), data, 0o600)
}

func (o options) putPair(name string, a *authority, s subject) error {
	crt, key, err := a.issue(s)
	if err != nil {
		return err
	}
	if err := o.put(name+".crt", crt); err != nil {
		return err
	}
	return o.put(name+".key", key)
}

// writeServing writes the authorities and the certificates of the API server and the kubelets.
func writeServing(o options, ca *authority) error {
	front, err := newAuthority("hone-test-front-proxy-ca")
	if err != nil {
		return err
	}
	for name, data := range map[string][]byte{
		"ca.crt": ca.certificatePEM, "ca.key": ca.keyPEM, "front-proxy-ca.crt": front.certificatePEM,
	} {
		if err := o.put(name, data); err != nil {
			return err
		}
	}
	names := append([]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "localhost", "127.0.0.1", "::1", o.serviceIP, o.host}, o.sans...)
	if err := o.putPair("apiserver", ca, subject{name: "kube-apiserver", hosts: names}); err != nil {
		return err
	}
	if err := o.putPair("kubelet-client", ca, subject{name: "kube-apiserver-kubelet-client", groups: []string{"system:masters"}}); err != nil {
		return err
	}
	if err := o.putPair("front-proxy-client", front, subject{name: "front-proxy-client"}); err != nil {
		return err
	}
	for name, ip := range o.nodes {
		node := subject{name: "system:node:" + name, groups: []string{"system:nodes"}, hosts: []string{name, ip}}
		if err := o.putPair("node-"+name, ca, node); err != nil {
			return err
		}
	}
	return nil
}

// writeServiceAccountKeys writes the RSA pair that signs and checks service-account tokens.
func writeServiceAccountKeys(o options) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	private := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := o.put("sa.key", private); err != nil {
		return err
	}
	return o.put("sa.pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}))
}

// writeToken writes a token file with one administrator, for clients without certificates, and
// returns the token.
func writeToken(o options) (string, error) {
	raw := make([]byte, 16)
	if _, err := rand.Read(raw); err != nil {
		return "", err
	}
	token := hex.EncodeToString(raw)
	return token, o.put("tokens.csv", []byte(token+`,token-admin,token-admin,"system:masters"`+"\n"))
}

func writeKubeconfigs(o options, ca *authority, apiPort int) error {
	users := map[string]subject{
		"kubeconfig":                         {name: "kubernetes-admin", groups: []string{"system:masters"}},
		"kube-controller-manager.kubeconfig": {name: "system:kube-controller-manager"},
		"kube-scheduler.kubeconfig":          {name: "system:kube-scheduler"},
		"kube-proxy.kubeconfig":              {name: "system:kube-proxy"},
	}
	for name := range o.nodes {
		users["node-"+name+".kubeconfig"] = subject{name: "system:node:" + name, groups: []string{"system:nodes"}}
	}
	server := "https://" + net.JoinHostPort(o.host, fmt.Sprint(apiPort))
	base64 := base64.StdEncoding.EncodeToString
	for file, user := range users {
		crt, key, err := ca.issue(user)
		if err != nil {
			return err
		}
		text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: hone-test, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: user, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: hone-test, context: {cluster: hone-test, user: user}}]
current-context: hone-test
`, server, base64(ca.certificatePEM), base64(crt), base64(key))
		if err := os.WriteFile(filepath.Join(o.dir, file), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}
