# random jinja expressions vs python
import random,json,sys,datetime
import jinja2,jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment
class Gen(jinja2.ext.Extension):
    tags={"generation"}
    def parse(self,parser):
        lineno=next(parser.stream).lineno
        body=parser.parse_statements(["name:endgeneration"],drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_g"),[],[],body).set_lineno(lineno)
    def _g(self,caller): return caller()
env=ImmutableSandboxedEnvironment(trim_blocks=True,lstrip_blocks=True,extensions=[jinja2.ext.loopcontrols,Gen])
env.filters['tojson']=lambda x,ensure_ascii=False,indent=None,separators=None,sort_keys=False: json.dumps(x,ensure_ascii=ensure_ascii,indent=indent,separators=separators,sort_keys=sort_keys)
def rx(m): raise jinja2.exceptions.TemplateError(m)
env.globals['raise_exception']=rx
ctx={"s":"Hello <W> é中😀 \t","n":5,"neg":-7,"f":1.5,"z":0,"t":True,"none":None,"l":[3,1,2],"e":[],"d":{"b":1,"a":[1,"x",None],"c":{"z":"é"}},"ls":["b","a","C","a"],"m":[{"role":"user","content":"hi","n":2},{"role":"tool","content":None,"n":1},{"role":"user","n":3}],"w":" one two  three\n","q":"it's"}
CTX=json.dumps(ctx)
R=random.Random(int(sys.argv[1]))
atoms=["s","n","neg","f","z","t","none","l","e","d","ls","m","w","q","missing","1","0","-3","2.5","'ab'","'x y'","''","true","none","[1,2]","(1,'a')","{'k':1}","[]","m[0]","d.a","range(3)","1e3","'é'","ls[0]","m[1].content","d.nope"]
filters=["length","upper","lower","trim","title","capitalize","list","first","last","sort","reverse","reverse|list","unique|list","join","join('-')","join(', ')","tojson","tojson(indent=2)","string","int","float","abs","round","round(1)","default('D')","default('D',true)","items|list","dictsort","sum","min","max","map('upper')|list","map(attribute='role')|list","map(attribute='n')|join(',')","selectattr('role')|list","selectattr('role','eq','user')|list","rejectattr('content')|list","select|list","reject('none')|list","select('string')|list","replace('a','Z')","replace('o','00',1)","escape","safe","indent","indent(2,true)","wordcount","batch(2)|list","slice(2)|list","groupby('role')|list","groupby('role')|map(attribute='grouper')|list","center(9)","truncate(5)","striptags","count","pprint","format(1)","urlencode","attr('x')","sort(attribute='n')|map(attribute='n')|list","sort(reverse=true)","tojson(ensure_ascii=True)","tojson(separators=(',',':'))","max(attribute='n')","sum(attribute='n')","d('q')","forceescape","list|length"]
tests=["defined","undefined","none","string","number","integer","float","boolean","mapping","sequence","iterable","odd","even","true","false","callable","lower","upper","in [1,2,'a']","eq 1","ne(2)","gt 1","lt 3","sameas none","divisibleby 2","escaped","not none","not defined","not string","equalto 'ab'"]
methods=[".split()",".split(' ')",".split('o',1)",".strip()",".lstrip('H ')",".rstrip()",".upper()",".title()",".startswith('H')",".endswith(('\\t','e'))",".replace('l','L')",".find('o')",".count('o')",".join(ls)",".items()",".keys()|list",".values()|list",".get('b')",".get('zz',7)",".index(1)","[0]","[-1]","[1:]","[:-1]","[::-1]","[::2]","[5:1:-1]",".b",".role",".c.z","['a']",".append(1)",".isdigit()",".isalpha()",".capitalize()",".swapcase()",".partition(' ')",".rpartition('o')",".rsplit(' ',1)",".splitlines()",".zfill(8)",".center(9,'*')",".ljust(7)",".format(1,2)",".encode()",".copy()",".lower()",".islower()",".isupper()",".rfind('o')",".removeprefix('He')",".expandtabs(4)",".__class__",".real",".rjust(9)"]
binops=["+","-","*","/","//","%","**","~","==","!=","<","<=",">",">=","in","not in","and","or"]
def ex(d):
    k=R.random()
    if d<=0 or k<0.2: return R.choice(atoms)
    if k<0.42: return "(%s)|%s"%(ex(d-1),R.choice(filters))
    if k<0.55: return "(%s)%s"%(ex(d-1),R.choice(methods))
    if k<0.65: return "(%s) is %s"%(ex(d-1),R.choice(tests))
    if k<0.9: return "(%s) %s (%s)"%(ex(d-1),R.choice(binops),ex(d-1))
    if k<0.93: return "not (%s)"%ex(d-1)
    if k<0.95: return "-(%s)"%ex(d-1)
    if k<0.98: return "(%s) if (%s) else (%s)"%(ex(d-1),ex(d-1),ex(d-1))
    return "[%s, %s]"%(ex(d-1),ex(d-1))
ws=["","-","+"]
def tag(x): return "{%"+R.choice(["","","-","+"])+" "+x+" "+R.choice(["","","-","+"])+"%}"
def txt(): return R.choice(["","a"," b ","\n","\n  ","  \n\n","x\n","{","}","<"," \t"])
def st(d):
    k=R.random()
    if d<=0 or k<0.35: return txt()+"{{"+R.choice(["","-"])+" "+ex(2)+" "+R.choice(["","-"])+"}}"+txt()
    if k<0.5: return tag("if "+ex(2))+body(d-1)+(tag("elif "+ex(1))+body(d-1) if R.random()<.3 else "")+(tag("else")+body(d-1) if R.random()<.5 else "")+tag("endif")
    if k<0.65:
        v=R.choice(["x","y","i, j"]); it=R.choice(["l","ls","m","d","s","range(4)","d.items()","none","missing","e","l[::-1]","m|selectattr('role','eq','user')","ls|map('upper')","ls|unique","d|dictsort"])
        return tag("for %s in %s%s"%(v,it,R.choice([""," if x"," if loop"," if n > 2",""])))+body(d-1)+"{{ loop.index }}{{ loop.last }}"+R.choice(["","{{ loop.nextitem }}","{{ loop.previtem }}","{{ loop.length }}","{{ x }}","{{ loop.changed(x) }}"])+R.choice(["",tag("break"),tag("if loop.index > 1")+tag("continue")+tag("endif")])+(tag("else")+"none" if R.random()<.3 else "")+tag("endfor")
    if k<0.78: return tag("set %s = %s"%(R.choice(["a","b","x","n","a, b","ns.k","ns.v"]),ex(2)))+txt()
    if k<0.82: return tag("set %s"%R.choice(["a","b","a | upper"]))+body(d-1)+tag("endset")
    if k<0.88: return tag("macro %s(p, q=%s)"%(R.choice(["f","g"]),ex(1)))+body(d-1)+"{{ p }}{{ q }}"+R.choice(["","{{ varargs }}","{{ kwargs }}","{{ caller() if caller else '' }}"])+tag("endmacro")
    if k<0.92: return "{{ %s(%s) }}"%(R.choice(["f","g"]),R.choice(["","1","1, 2","p=3","q=s","1, 2, 3","*l","**{'q':1}"]))
    if k<0.94: return tag("call %s(1)"%R.choice(["f","g"]))+body(d-1)+tag("endcall")
    if k<0.96: return tag("with a = %s, b = a"%ex(1))+body(d-1)+"{{ b }}"+tag("endwith")
    if k<0.98: return tag("filter %s"%R.choice(["upper","trim","indent","replace('a','b')"]))+body(d-1)+tag("endfilter")
    return R.choice(["{# c #}","{#- c -#}","{% raw %}{{ x }}{% endraw %}",tag("generation")+"g"+tag("endgeneration"),"\n  {# c #}\n"])
def body(d): return "".join(st(d) for _ in range(R.randint(1,3)))
out=open(sys.argv[3],'w')
out.write(json.dumps({"context":ctx})+"\n")
n=0
import warnings; warnings.simplefilter("ignore")
while n<int(sys.argv[2]):
    t= "{{ "+ex(3)+" }}" if R.random()<.5 else "{% set ns = namespace(k=1) %}"+body(3)+"{{ ns.k }}{{ a }}{{ b }}{{ x }}"
    row={"template":t}
    try:
        row["out"]=env.from_string(t).render(**json.loads(CTX))
        if " object at 0x" in row["out"] or len(row["out"])>20000: continue
    except Exception as e:
        row["error"]=type(e).__name__; row["message"]=str(e)
        if " at 0x" in row["message"]: continue
    try: out.write(json.dumps(row)+"\n")
    except Exception: continue
    n+=1
