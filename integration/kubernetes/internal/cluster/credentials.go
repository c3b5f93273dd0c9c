package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// credentials are files for kube-apiserver, and what it takes to be believed.
type credentials struct {
	cert, key, tokens       string
	adminToken, pluginToken string
	pool                    *x509.CertPool
}

func newCredentials(dir string) (*credentials, error) {
	c := &credentials{
		cert: filepath.Join(dir, "cert.pem"), key: filepath.Join(dir, "key.pem"), tokens: filepath.Join(dir, "tokens.csv"),
		adminToken: rand.Text(), pluginToken: rand.Text(), pool: x509.NewCertPool(),
	}
	if err := c.certify(); err != nil {
		return nil, err
	}
	tokens := fmt.Sprintf("%s,admin,admin,system:masters\n%s,%s,plugin,system:serviceaccounts\n", c.adminToken, c.pluginToken, Plugin)
	return c, os.WriteFile(c.tokens, []byte(tokens), 0o600)
}

// certify makes a key and a certificate for loopback that vouches for itself.
func (c *credentials) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	c.pool.AppendCertsFromPEM(cert)
	if err := os.WriteFile(c.cert, cert, 0o600); err != nil {
		return err
	}
	return os.WriteFile(c.key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600)
}

func (c *credentials) transport() *http.Transport {
	return &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: c.pool}, MaxIdleConnsPerHost: 64,
	}
}
