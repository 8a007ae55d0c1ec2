package cbor

import (
	"bytes"
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"

	"portico/resource/bodylimit"
)

// JSON that becomes CBOR and JSON again is the same.
func TestThereAndBack(t *testing.T) {
	for _, text := range []string{
		`{"a":{"b":[1,-1,9223372036854775807,-9223372036854775808,1.5,1e+300,true,false,null,"",[],{}]},"c":"<é\u0000\u2028>"}`, `[]`, `"x"`, `null`,
	} {
		data, err := FromJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		got, err := ToJSON(data)
		if string(bytes.TrimSpace(got)) != text || err != nil || string(data[:3]) != SelfDescribed {
			t.Errorf("%s became %q and %s, %v", text, data, got, err)
		}
	}
}

// What upstream's types encode in a way of their own is what JSON has for it.
func TestBytesAndTimes(t *testing.T) {
	for data, want := range map[string]string{
		"\xa1\x61a\xd6\x43\x00\x01\xff":     `{"a":"AAH/"}`,                 // bytes, in base64
		"\xa1\x41a\x41b":                    `{"a":"b"}`,                    // text as bytes
		"\xa1\x61a\xc1\x1a\x51\x4b\x67\xb0": `{"a":"2013-03-21T20:04:00Z"}`, // RFC 8949, appendix A
		"\xa1\x61a\x41\xff":                 `{"a":"\ufffd"}`,               // bytes that are no text
	} {
		if got, err := ToJSON([]byte(data)); string(bytes.TrimSpace(got)) != want || err != nil {
			t.Errorf("%q became %s, %v; want %s", data, got, err, want)
		}
	}
}

// What is converted is JSON of no more values and bytes than were counted before.
func FuzzToJSON(f *testing.F) {
	for _, text := range []string{`{"a":[1.5,{"b":"\u0000\"é"}],"c":{}}`, `[[],[[]],-5,18446744073709551615,false]`} {
		data, err := FromJSON([]byte(text))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, data := range []string{"\x9f\x01\x02\xff", "\xbf\x61a\x7f\x61b\x61c\xff\xff", "\xd7\x82\x41a\x42bc", "\xc1\xfb\x41\xd4\x52\xd9\xe2\x00\x00\x00", "\xd6\xd7\x43abc", "\xfa\x00\x00\x00\x01"} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := ToJSON(data)
		if err != nil {
			return
		}
		size, err := bodylimit.Measure(data, "application/cbor", bodylimit.Structs)
		if bodylimit.TooLarge(err) {
			return
		}
		if !json.Valid(got) || err != nil || size.Bytes < len(bytes.TrimSpace(got)) {
			t.Fatalf("%x: %v, %d bytes counted for %s", data, err, size.Bytes, got)
		}
		var exact any
		if json.Unmarshal(got, &exact); size.Values < values(exact) || size.Items < items(exact) {
			t.Fatalf("%x: %+v counted for %s", data, size, got)
		}
		if again, err := FromJSON(got); err != nil || direct.Unmarshal(again, new(any)) != nil {
			t.Fatalf("%x: %s cannot be encoded: %v", data, got, err)
		}
	})
}

// values and items count members, elements and containers, and elements.
func values(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			n += max(1, values(member))
		}
		n++
	case []any:
		for _, element := range v {
			n += max(1, values(element))
		}
		n++
	}
	return n
}

func items(v any) (n int) {
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			n += items(member)
		}
	case []any:
		for _, element := range v {
			n += 1 + items(element)
		}
	}
	return n
}
