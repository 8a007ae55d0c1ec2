package kindtest

import (
	"fmt"
	"math"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// maxChanges bounds the changes to one object, and manyElements is the length of a long list.
const maxChanges, manyElements = 8, 2000

// Change sets fields of a Go struct, in place, to nothing, to empty, long and repeated lists, and
// to values that are wrong or strange. Each choice is a byte of choices; the changes end with them.
func Change(obj any, choices []byte) {
	c := &chooser{choices: choices}
	for n := 0; n < maxChanges && len(c.choices) > 0; n++ {
		c.change(reflect.ValueOf(obj).Elem())
	}
}

type chooser struct {
	choices []byte
	long    bool // there is a long list or map; a second one could be in it
}

// next returns a number below n.
func (c *chooser) next(n int) int {
	if len(c.choices) == 0 || n == 0 {
		return 0
	}
	b := int(c.choices[0])
	c.choices = c.choices[1:]
	return b % n
}

// one returns one of all.
func one[T any](c *chooser, all ...T) T { return all[c.next(len(all))] }

// change changes v, which is addressable, or one value below it.
func (c *chooser) change(v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *metav1.TypeMeta, *[]metav1.ManagedFieldsEntry, *runtime.Object:
		return
	case *runtime.RawExtension:
		p.Raw = one(c, nil, []byte(`null`), []byte(`{}`), []byte(`{"apiVersion":"v1","kind":"x"}`))
		return
	case *resource.Quantity:
		*p = one(c, strangeQuantities...)
		return
	case *intstr.IntOrString:
		*p = one(c, intstr.IntOrString{}, intstr.FromInt32(math.MinInt32), intstr.FromInt32(math.MaxInt32),
			intstr.FromString(""), intstr.FromString("99999999999999999999%"), intstr.FromString("-%"), intstr.IntOrString{Type: 7, StrVal: "x"})
		return
	case *metav1.Time:
		*p = one(c, metav1.Time{}, metav1.Unix(0, 0), metav1.Unix(math.MaxInt32, 0))
		return
	case *metav1.MicroTime:
		*p = one(c, metav1.MicroTime{}, metav1.MicroTime(metav1.Unix(1, 1000)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		if n := v.NumField(); n > 0 {
			c.change(v.Field(c.next(n)))
		}
	case reflect.Pointer:
		c.changePointer(v)
	case reflect.Slice:
		c.changeSlice(v)
	case reflect.Map:
		c.changeMap(v)
	case reflect.String:
		v.SetString(one(c, strangeStrings...))
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int32, reflect.Int64, reflect.Int:
		n := one[int64](c, 0, -1, 1, 70000, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64)
		if v.OverflowInt(n) {
			n = math.MaxInt32
		}
		v.SetInt(n)
	}
}

func (c *chooser) changePointer(v reflect.Value) {
	switch {
	case c.next(4) == 0:
		v.SetZero()
		return
	case v.IsNil():
		v.Set(reflect.New(v.Type().Elem()))
	}
	c.change(v.Elem())
}

func (c *chooser) changeSlice(v reflect.Value) {
	first := reflect.New(v.Type().Elem()).Elem()
	if v.Len() > 0 {
		first = v.Index(0)
	}
	switch c.next(8) {
	case 0:
		v.SetZero()
	case 1:
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	case 2:
		v.Set(reflect.Append(v, first))
	case 3:
		if c.long {
			return
		}
		c.long = true
		many := reflect.MakeSlice(v.Type(), manyElements, manyElements)
		for i := range manyElements {
			many.Index(i).Set(first)
		}
		v.Set(many)
	case 4:
		v.Set(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()))
		c.change(v.Index(v.Len() - 1))
	default:
		if v.Len() == 0 {
			v.Set(reflect.Append(v, first))
		}
		c.change(v.Index(c.next(v.Len())))
	}
}

func (c *chooser) changeMap(v reflect.Value) {
	choice := c.next(6)
	if choice == 0 {
		v.SetZero()
		return
	}
	if choice == 1 || v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	set := func(key string, value reflect.Value) {
		v.SetMapIndex(reflect.ValueOf(key).Convert(v.Type().Key()), value)
	}
	if choice == 2 && !c.long {
		c.long = true
		for i := range manyElements {
			set(fmt.Sprintf("k%d", i), reflect.New(v.Type().Elem()).Elem())
		}
		return
	}
	value := reflect.New(v.Type().Elem()).Elem()
	c.change(value)
	set(one(c, append(strangeStrings, "cpu", "memory", "storage", "requests.cpu", "hugepages-2Mi", "count/pods")...), value)
}

var strangeStrings = []string{
	"", "x", "-", "*", "*.", ".", "..", "/", "//", "a/b", "A b!", "$(", "%", "0", "-1", "99999999999999999999", "::", "0.0.0.0/0", "::/0", "10.0.0.1", "fd00::1/200",
	"\x00", "é", "None", "true", "{}", "[", "a=b,", "a in (", "* * * * *", "@every 1s", "CRON_TZ= * * * * *", "TZ=x", "1-", "-1,", "0-4294967296", "http://[", "https://a:b@c/",
	"example.com/a", strings.Repeat("a", 64), strings.Repeat("a.", 200), strings.Repeat("(", 500), "self.x", "object.", "device.attributes['a'].b == 'c'",
	"v1", "Always", "Never", "RollingUpdate", "TCP", "IPv4", "IPv6", "Indexed", "In", "Exists", "NotIn", "Equal",
}

var strangeQuantities = func() []resource.Quantity {
	var all []resource.Quantity
	for _, text := range []string{"0", "-1", "1", "1n", "1e-9", "0.5", "1500m", "3Gi", "7E", "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1e30", "16Ei", "0.0000000001"} {
		if q, err := resource.ParseQuantity(text); err == nil {
			all = append(all, q)
		}
	}
	return all
}()
