// A Kubernetes API server with its etcd in the same process, for the tests. The flags are kube-apiserver's, and more
// come from the environment: GRETE_ETCD_DIRECTORY, whose files outlive the process, GRETE_ETCD_ADDRESS (host:port),
// and GRETE_KEYS_DIRECTORY, where the first start leaves
//
//	service-accounts.key        with which tokens are signed
//	clients-ca.crt              the authority of client certificates
//	admin.crt, admin.key        a client of it that may do everything
//	nobody.crt, nobody.key      a client of it that may do nothing
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const validity = 10 * 24 * time.Hour

func startEtcd(directory, address string) error {
	config := embed.NewConfig()
	config.Dir = directory
	config.LogLevel = "error"
	clients := url.URL{Scheme: "http", Host: address}
	peers := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{clients}, []url.URL{clients}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{peers}, []url.URL{peers}
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true // processes are killed here, machines are not
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return nil
	case err := <-etcd.Err():
		return err
	case <-time.After(30 * time.Second):
		return errors.New("etcd is not ready after 30 s")
	}
}

func write(path, kind string, bytes []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600)
}

func newKey(path string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil || path == "" {
		return key, err
	}
	bytes, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, write(path, "EC PRIVATE KEY", bytes)
}

func newClient(directory, name string, groups []string, ca *x509.Certificate, caKey *ecdsa.PrivateKey) error {
	key, err := newKey(filepath.Join(directory, name+".key"))
	if err != nil {
		return err
	}
	certificate, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, ca, key.Public(), caKey)
	if err != nil {
		return err
	}
	return write(filepath.Join(directory, name+".crt"), "CERTIFICATE", certificate)
}

func makeKeys(directory string) error {
	last := filepath.Join(directory, "clients-ca.crt")
	if _, err := os.Stat(last); err == nil {
		return nil
	}
	if _, err := newKey(filepath.Join(directory, "service-accounts.key")); err != nil {
		return err
	}
	caKey, err := newKey("")
	if err != nil {
		return err
	}
	ca := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "clients of the tests"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(validity),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	for name, groups := range map[string][]string{"admin": {"system:masters"}, "nobody": nil} {
		if err := newClient(directory, name, groups, ca, caKey); err != nil {
			return err
		}
	}
	bytes, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return err
	}
	return write(last, "CERTIFICATE", bytes)
}

func main() {
	err := makeKeys(os.Getenv("GRETE_KEYS_DIRECTORY"))
	if err == nil {
		err = startEtcd(os.Getenv("GRETE_ETCD_DIRECTORY"), os.Getenv("GRETE_ETCD_ADDRESS"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(cli.Run(app.NewAPIServerCommand()))
}
