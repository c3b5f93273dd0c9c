package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"slices"
	"strconv"
)

// Names maps an import path to the names of it that a file must not mention. "*" forbids every one.
type Names map[string][]string

// Mentions parses a Go file and returns where it mentions a forbidden name, as "file.go:12: time.Now". A mention is
// enough, called or not: a clock that is handed on is a clock too. A dot import of such a package is a mention itself,
// since what it brings in can't be told from local names. src is as in parser.ParseFile: nil reads the file.
func Mentions(filename string, src any, forbidden Names) ([]string, error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, filename, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var found []string
	note := func(at token.Pos, what string) {
		found = append(found, fmt.Sprintf("%s:%d: %s", filepath.Base(filename), fset.Position(at).Line, what))
	}
	local := map[string]string{} // the name in this file -> import path
	for _, spec := range file.Imports {
		name, importPath := localName(spec)
		if name == "." && len(forbidden[importPath]) > 0 {
			note(spec.Pos(), `import . "`+importPath+`"`)
		}
		local[name] = importPath
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if pkg, ok := sel.X.(*ast.Ident); ok {
			names := forbidden[local[pkg.Name]]
			if slices.Contains(names, sel.Sel.Name) || slices.Contains(names, "*") {
				note(sel.Pos(), local[pkg.Name]+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return found, nil
}

// localName is what the file calls an import. Without a name of its own that is the path's last part, which is true of
// every package whose names are worth forbidding.
func localName(spec *ast.ImportSpec) (name, importPath string) {
	importPath, _ = strconv.Unquote(spec.Path.Value) // the parser has accepted it
	if spec.Name != nil {
		return spec.Name.Name, importPath
	}
	return path.Base(importPath), importPath
}

// PackageMentions is Mentions for every file of the packages.
func PackageMentions(pkgs []Package, forbidden Names) ([]string, error) {
	var found []string
	for _, p := range pkgs {
		for _, f := range p.Files() {
			in, err := Mentions(f, nil, forbidden)
			if err != nil {
				return nil, err
			}
			for _, m := range in {
				found = append(found, p.ImportPath+"/"+m)
			}
		}
	}
	return found, nil
}
