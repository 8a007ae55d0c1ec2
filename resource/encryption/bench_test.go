package encryption

import (
	"bytes"
	"testing"

	"portico/internal/testing/kmstest"
)

// BenchmarkFromStorage decrypts a value of 600 bytes by each provider, as a start does with every object.
func BenchmarkFromStorage(b *testing.B) {
	plugin := kmstest.Start(b)
	for name, provider := range map[string]string{
		"aescbc": keys("aescbc", "one"), "aesgcm": keys("aesgcm", "one"), "secretbox": keys("secretbox", "one"), "kms": kms(plugin),
	} {
		b.Run(name, func(b *testing.B) {
			e, _ := open(b, false, rule("secrets", provider))
			var stored [][]byte // each has a nonce, of which a KMS derives the key
			for range b.N {
				value, err := e.ToStorage(secrets.GroupResource(), bytes.Repeat([]byte("v"), 600), []byte("key"))
				if err != nil {
					b.Fatal(err)
				}
				stored = append(stored, value)
			}
			b.ResetTimer()
			b.ReportAllocs()
			for _, value := range stored {
				if _, _, err := e.FromStorage(secrets.GroupResource(), value, []byte("key")); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
