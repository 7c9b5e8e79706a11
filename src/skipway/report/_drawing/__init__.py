"""The drawing as data: from the plain wiring dictionary to bands, tracks and rails, which writers turn into SVG or characters.

`facts` reads the dictionary and cuts streams into blocks, `places` says where findings belong, `rows` what is drawn at a site,
`order` in which order everything is used, `runs` what is folded, `tracks` where lines run, `layout` puts it together.
"""
